"""``ottla completion``: scripts for completion of the command line in bash, zsh and fish."""

from __future__ import annotations

from ottla.cli.arguments import command_parser
from ottla.cli.main import COMMANDS

TEXT = """Print the script that completes commands, options, and names of topics, groups, brokers and contexts.
Names come from the cluster that the command line, a variable or the current context names, if it answers within two
seconds.

examples:
  source <(ottla completion bash)                  in ~/.bashrc
  source <(ottla completion zsh)                   in ~/.zshrc, after compinit
  ottla completion fish | source                   in ~/.config/fish/config.fish
"""
SCRIPTS = {
    "bash": r"""_ottla() {
    local word
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        COMPREPLY+=("$(printf '%q' "$word")")
    done < <(ottla completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ottla ottla
""",
    "zsh": r"""_ottla() {
    local -a found shown
    local word text
    while IFS=$'\t' read -r word text; do
        found+=("$word")
        shown+=("$word${text:+  -- $text}")
    done < <(ottla completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        compadd -l -d shown -a found
    else
        _files
    fi
}
compdef _ottla ottla
""",
    "fish": r"""function __ottla_words
    set -l words (commandline -opc) (commandline -ct)
    ottla completion words -- $words[2..-1] 2>/dev/null
end
complete -c ottla -a '(__ottla_words)'
""",
}
WORDS = "words"


def run(arguments: list[str]) -> int:
    """Print the completion script of a shell, or, as that script calls it, the candidates for the last word; return 0.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    if arguments[:2] == [WORDS, "--"]:
        # lazy: 90.0 ms, 5000 kB: shells load the script each time they start
        from ottla.cli.completion_words import complete

        for word, text in complete(arguments[2:], COMMANDS):
            if not any(x.isspace() and x != " " for x in word):
                print(f"{word}\t{text}")
        return 0
    parser = command_parser("completion", TEXT)
    parser.add_argument("shell", choices=list(SCRIPTS), help="shell")
    options = parser.parse_args(arguments)
    print(SCRIPTS[options.shell], end="")
    return 0
