"""What a person sees, and how what a person types is read.

screen              standard output and standard error: text, notes, errors, signs of life
tables, columns     tables that fit the terminal; the width of characters
progress            progress bars
speaker, wrapping   an answer while it is generated; breaking its lines between words
ui                  sizes, times and safe text
lines, typed        reading lines; decoding what was typed
interrupts          what Ctrl-C does at every moment of a command
"""
