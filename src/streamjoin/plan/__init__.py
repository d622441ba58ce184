"""How a join will run: options, the physical plan as frozen data, and the choices that fill it in."""
