"""One file per command; rendering."""
