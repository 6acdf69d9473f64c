"""`interlock selftest`: a sample run of every shape, and a matrix of drivers killed at every commit of it."""
