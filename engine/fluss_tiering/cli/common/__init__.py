"""What all commands share: options, the words of the help, and how output is laid out."""
