"""Messages, record batches and codecs of sockets and files, as typed values. No I/O, no clock, no trio."""
