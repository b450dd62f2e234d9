"""What `--json` writes, as types: a module for each command, whose `<Command>Report` is the document, or the kinds of it.

Views build the documents, mypy checks them against these types, and `docs/build_schemas.py` makes JSON Schemas of them. No
module here is imported while a command runs. Each key says what it is, with its unit; a key that is not required is there if
an option asks for it.
"""
