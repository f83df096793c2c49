"""The server's unary calls as values: the method, the request, and a function that reads the answer.

The blocking client and the asyncio client send the same values, so that each call is defined once.
"""
