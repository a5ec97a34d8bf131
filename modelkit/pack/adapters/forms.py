"""Whose forms an adapter can be given out in (`given_out`)."""

from typing import Literal, get_args

AdapterForm = Literal["peft", "mlx-lm"]
FORMS: tuple[AdapterForm, ...] = get_args(AdapterForm)
