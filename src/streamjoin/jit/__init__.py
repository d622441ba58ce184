"""From Python source to machine code: the one decorator, generated modules, and the cache of compiled code."""
