"""Converts the WebSocket test suite of Autobahn, which is written in Python 2, for Python 3.

    convert.py FROM TO

FROM is the package as installed from PyPI, TO the folder that receives the converted package. Byte strings of Python 2
become texts in which each character stands for one byte (latin-1); run.py turns them into bytes where they are sent.
"""
import pathlib
import shutil
import sys

from fissix import refactor

FIXERS = ["except", "has_key", "idioms", "import", "map", "numliterals", "print", "unicode", "xrange", "zip"]
REPLACEMENTS = [
    # The order of base classes.
    ("(object, Case, )", "(Case, )"),
    # A division of integers in case 10.1.1.
    ("len(self.payload) / self", "len(self.payload) // self"),
    # A case that the suite leaves out too.
    ("from case9_9_1 import *", ""),
]


def convert(tool, source, target):
    # The bytes of a source file are the bytes of its literals.
    text = source.read_text("latin-1").replace("coding=utf-8", "")
    for old, new in REPLACEMENTS:
        text = text.replace(old, new)
    target.write_text(str(tool.refactor_string(text + "\n", str(source))), "utf-8")


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(target, ignore_errors=True)
    (target / "case").mkdir(parents=True)
    shutil.copytree(source / "testdata", target / "testdata")
    # The package imports programs that this project does not run.
    shutil.copy(source / "_version.py", target / "__init__.py")
    tool = refactor.RefactoringTool(["fissix.fixes.fix_" + fixer for fixer in FIXERS])
    for path in [source / "fuzzing.py", source / "caseset.py", *sorted((source / "case").glob("*.py"))]:
        # Imports of sibling modules are recognized by the place of the file.
        convert(tool, path, target / path.relative_to(source))


main()
