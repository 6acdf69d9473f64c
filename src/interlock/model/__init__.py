"""What exists: frozen values and enums. No I/O, no clock, no chance."""
