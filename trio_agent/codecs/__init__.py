"""Translations between our messages and what a model can speak.  Pure; know nothing of runs."""

from __future__ import annotations

from ._native import NativeCodec as NativeCodec

__all__ = ["NativeCodec"]
