# What the tests of this folder share: the tree in $root, a folder in $work, and claims that are right or wrong. A test puts
# the exit code of what it ran into $code and names the file that it reads in $page.
set -uo pipefail
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 code=0

check() { if "${@:2}"; then printf 'right  %s\n' "$1"; else printf 'WRONG  %s\n' "$1"; failed=1; fi; }
ends_with() { [ "$code" = "$1" ] || { echo "exit code $code:"; cat "$page"; return 1; } >&2; }
silent_about() { ! grep -qF -- "$1" "$page" || { echo "'$1' is in:"; cat "$page"; return 1; } >&2; }
says() {                                   # $@: texts of the page, and those after '!' that it must not have
  local text
  for text in "$@"; do
    if [[ $text == !* ]]; then silent_about "${text#!}" || return; continue; fi
    grep -qF -- "$text" "$page" || { echo "'$text' is not in:"; cat "$page"; return 1; } >&2
  done
}
