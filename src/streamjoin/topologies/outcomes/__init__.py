"""Result rows of outer, semi, anti, as-of and nearest joins, made from the matches that a topology finds."""
