"""The backend of the embedded storage: the server has tables of its own in its data folder."""
