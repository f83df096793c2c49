"""OpenID Connect: callers that an issuer of tokens vouches for."""
