"""The reader of bash that the house rules rest on."""

from __future__ import annotations

import pytest

from tests.support.shell_commands import commands


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("ls -l | sort; cat <x >y && rm z", "ls sort cat rm"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while read -r x; do f1 $x; done <<<'curl x'\nend", "read f1 end"),
        ("x=$(a b) y=`c d` e f", "a c e"),
        ('echo "text $(a "$(b)") ; c"', "echo a b"),
        ("awk '{ print \"x\" ; curl }' file # perl", "awk"),
        ("case $x in a|b) one;; (c) two ;; *) three ;; esac; four", "one two three four"),
        (
            "case $x in\n  # curl here\n  a) case $y in b) one ;; esac ;;\n  *) ;;\nesac\ntwo",
            "one two",
        ),
        ("f() { a; }; function g { b; }; f; g; h", "a b h"),
        ("cat <<EOF\ncurl x\nEOF\nls", "cat ls"),
        ("cat <<-'EOF'\n\tcurl x\n\tEOF\nls", "cat ls"),
        ("[[ $a = b && ( $c < d ) ]] && e", "e"),
        ("[ -e x ] || a", "[ a"),
        ("(( x = y + 1 )); z=$((1 + (2))); a", "a"),
        ("list=(curl wget 'x y') ; a", "a"),
        ("list+=(curl) && a", "a"),
        ("exec 3>&1 ls", "exec ls"),
        ("command -v podman >/dev/null", "command podman"),
        ("a 2>/dev/null & b", "a b"),
        ("for x in curl wget; do a; done", "a"),
        ("for ((i = 0; i < ${#x[@]}; i++)); do a; done; b", "a b"),
        ("( a; b ) | c", "a b c"),
        ("diff <(a) <(b)", "a b diff"),
        ("X=1 a \\\n  curl\nb", "a b"),
        ("echo ${x:-$(a)} ${#x} ${x//\\'/q}; b", "echo a b"),
        ("printf $'it\\'s; curl'; a", "printf a"),
        ('"$tool" x; $run y; a', "a"),
        ("! a && { b; }", "a b"),
        ("x=${y#(} ; a", "a"),
    ],
)
def test_the_commands_of_a_script(script: str, names: str) -> None:
    assert sorted(c.name for c in commands(script)) == sorted(names.split())


def test_lines_are_counted() -> None:
    assert [(c.line, c.name) for c in commands("a\n\nx='\n'\nb\n")] == [(1, "a"), (5, "b")]
