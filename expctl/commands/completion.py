"""expctl completion: what makes a shell complete verbs, options, ids and hosts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


class Shell(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Each script hands the words to `completion --answer`, which prints a line for each offer: the word, a tab, what it is.
SCRIPTS = {
    Shell.BASH: r"""# for ~/.bashrc:  eval "$(expctl completion bash)"
_expctl() {
    local line lines word width=0
    mapfile -t lines < <("${COMP_WORDS[0]}" completion --answer -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    for line in "${lines[@]}"; do
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then compopt -o default; continue; fi
        COMPREPLY+=("$word")
        (( ${#word} > width )) && width=${#word}
    done
    # Where several are listed, what they are stands beside them; a single one is inserted, so it stands alone.
    if (( ${#COMPREPLY[@]} > 1 )) && [[ $COMP_TYPE == 63 || $COMP_TYPE == 9 ]]; then
        COMPREPLY=()
        for line in "${lines[@]}"; do
            word=${line%%$'\t'*}
            [[ $word == :files ]] && continue
            printf -v line '%-*s  %s' "$width" "$word" "${line#*$'\t'}"
            COMPREPLY+=("${line%"${line##*[![:space:]]}"}")
        done
        compopt -o nosort 2>/dev/null
    fi
}
complete -F _expctl expctl
""",
    Shell.ZSH: r"""#compdef expctl
# for ~/.zshrc, after compinit:  eval "$(expctl completion zsh)"
_expctl() {
    local line word
    local -a lines found
    lines=("${(@f)$("${words[1]}" completion --answer -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        [[ -z $line ]] && continue
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then _files; continue; fi
        # Without a description no colon either: zsh would set off a group for those that have an empty one.
        line=${line#*$'\t'}
        found+=("${word//:/\\:}${line:+:$line}")
    done
    (( ${#found} )) && _describe -V expctl found
}
if [[ ${funcstack[1]} == _expctl ]]; then _expctl "$@"; else compdef _expctl expctl; fi
""",
    Shell.FISH: r"""# for ~/.config/fish/config.fish:  expctl completion fish | source
function __expctl_answer
    set -l words (commandline -opc)
    $words[1] completion --answer -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c expctl -f -a '(__expctl_answer | string match -v ":files*")'
complete -c expctl -n '__expctl_answer | string match -q ":files*"' -F
""",
}


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print a script for your shell, such as: eval "$(expctl completion bash)"."""
    print(SCRIPTS[shell], end="")
