"""Bytes <-> messages: everything that crosses a socket or lies in a file, as typed values. No IO, no clock, no trio."""
