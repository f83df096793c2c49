"""One module for each revision of the layout."""
