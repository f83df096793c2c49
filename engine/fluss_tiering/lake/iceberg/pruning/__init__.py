"""What lets readers skip parts of a data file: the order of its rows and the bloom filters of its columns."""
