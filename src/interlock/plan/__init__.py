"""Text to plan, pure: parse, references, compile, resolve (through a Sources protocol), freeze."""
