"""The server's unary calls as values: method, request, and how to read the answer.

The blocking and the asyncio client send the same values, so that what a call means stands here once.
"""
