"""Whose forms an adapter can be exported in (`export`)."""

from typing import Literal, get_args

AdapterForm = Literal["peft", "mlx-lm"]
FORMS: tuple[AdapterForm, ...] = get_args(AdapterForm)
