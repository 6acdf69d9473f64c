"""What the system knows of processes: whose they are, whether they live, and how they are ended."""
