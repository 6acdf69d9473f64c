"""Worktrees of units and what comes of them: made, kept, merged, all through the git command line."""
