"""The settings of the server, and the values that they are made of."""
