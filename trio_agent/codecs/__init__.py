"""Translations between our messages and what a model can speak.  Pure; know nothing of runs."""

from __future__ import annotations

from ._json import JSONCodec as JSONCodec
from ._native import NativeCodec as NativeCodec
from ._react import ReActCodec as ReActCodec

__all__ = ["JSONCodec", "NativeCodec", "ReActCodec"]
