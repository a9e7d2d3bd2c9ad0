"""Records on the command line: text and JSON forms, reading of input lines and topics, sending of batches."""
