"""What `interlock doctor` looks at: the host, the project, its engines and env groups."""
