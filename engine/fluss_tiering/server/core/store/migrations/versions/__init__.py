"""The revisions of the layout, one module for each."""
