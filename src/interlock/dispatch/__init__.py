"""The outside world: commands, Python functions, prompts to agents and model APIs, git, secrets, logs."""
