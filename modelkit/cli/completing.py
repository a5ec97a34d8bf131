"""What bash is told to complete, for words that it takes for several.

`:` and `=` part words for bash (COMP_WORDBREAKS), and the names of packages and `-p NAME=VALUE` have them. So
it is asked for its line, and told what takes the place of the one that it would replace.
`main` imports this where a shell asks; click has the other shells.
"""

import os

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_SOURCE = """\
%(complete_func)s() {
    local IFS=$'\\n' completion
    for completion in $(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="${COMP_WORDS[COMP_CWORD]}" \
%(complete_var)s=bash_complete $1); do
        case $completion in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*=) compopt -o nospace; COMPREPLY+=("${completion#plain,}") ;;
            plain,*) COMPREPLY+=("${completion#plain,}") ;;
        esac
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class Bash(BashComplete):
    source_template = _SOURCE
    _held = ""
    """What stands in front of what bash will replace: nothing where the word is in quotes."""

    def get_completion_args(self) -> tuple[list[str], str]:
        if "COMP_LINE" not in os.environ:  # a script of click's own, which somebody has kept
            return super().get_completion_args()
        line, word = os.environ["COMP_LINE"], "".join(split_arg_string(os.environ["COMP_WORD"])[:1])
        words = split_arg_string(line)[1:]
        begun = words.pop() if words and not line[-1].isspace() else ""
        word = "" if word in (":", "=") else word  # behind one of these, it is bash's word
        self._held = begun.removesuffix(word) if begun.endswith(word) else ""
        return words, begun

    def format_completion(self, item: CompletionItem) -> str:
        goes_on = item.value.lower().startswith(self._held.lower())
        return f"{item.type},{item.value[len(self._held) :] if goes_on else item.value}"
