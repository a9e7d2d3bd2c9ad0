"""Records on the command line: their text and JSON forms, where they are read from, and how they are sent."""
