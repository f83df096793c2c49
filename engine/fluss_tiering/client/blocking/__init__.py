"""The calls of the blocking client, by their subject, and the connection on which it makes them."""
