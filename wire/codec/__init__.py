"""Typed message codecs: primitives, schema, compiled codecs and the interpreter that checks them."""
