"""Records on the command line: text and JSON forms, filters, consuming (also as group member), producing, export.

An export is a file of JSON lines with the records of a topic; they can be imported from it.
"""
