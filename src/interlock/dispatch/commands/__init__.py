"""Commands and scripts: started, watched, ended, and what they say."""
