#!/usr/bin/env bash
# Makes a folder of static pages: README, chapters, pages, what they link, and a recorded step of each stage.
# `zl docs` calls it: tutorials/docs.sh ZEROLAB [--out DIR]. Exit codes: 0 fine, 1 a broken link or a step that was not
# recorded, 2 usage, 69 no cmark-gfm, 74 a file cannot be written.
set -uo pipefail
usage() {
  cat <<'TEXT'
usage: ./zl docs [--out DIR]

Makes static pages for a course: README, the chapters, the pages of tutorials/reference, every file that they link, and
reports/STAGE.html, a recorded step of each stage. Any web server can host the folder, and a browser opens its
index.html without one. Links are checked; nothing is loaded from a network.

  --out DIR   the folder (default build/docs); it must be empty, or made by an earlier './zl docs'
TEXT
}
die() { printf 'zl docs: %s\n' "${*:2}" >&2; exit "$1"; }

root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")
out=$root/build/docs zerolab=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --out) [ -n "${2:-}" ] || die 2 "--out needs a folder"; out=$(realpath -m -- "$2"); shift 2 ;;
    *) [ -z "$zerolab" ] && [ -x "$1" ] || die 2 "unknown argument '$1'; './zl docs --help' lists them"
      zerolab=$(readlink -f "$1"); shift ;;
  esac
done
command -v cmark-gfm >/dev/null || die 69 "cmark-gfm is missing; install it (apt: cmark-gfm)"
[ -n "$zerolab" ] || die 2 "the first argument is the program zerolab"
[ -e "$out/.zl-docs" ] || [ -z "$(ls -A "$out" 2>/dev/null)" ] ||
  die 2 "'$out' holds files that 'zl docs' has not made; give another --out"
mkdir -p "$out/reports" && : >"$out/.zl-docs" || die 74 "'$out' cannot be written"

# --- one recorded step of each stage -----------------------------------------------------------------

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for stage in ddp zero1 zero2 zero3; do
  (cd "$runs" && "$zerolab" train --model tiny --ranks 4 --steps 3 --stage "$stage" --out "$stage" -q) >/dev/null 2>"$runs/log" ||
    die 1 "the step of $stage was not recorded: $(cat "$runs/log")"
  cp "$runs/$stage/report.html" "$out/reports/$stage.html" || die 74 "'$out/reports' cannot be written"
done

# --- pages, and what they link -----------------------------------------------------------------------

escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' "$@"; }

# The body of a page: Markdown, whose local links become links to pages and whose headings get names; the files of a
# folder; or a text as it is.
body() {                                   # $1: a path below root
  case $1 in
    *.md) cmark-gfm -e table -e strikethrough --unsafe "$root/$1" | sed -E '
        s/href="([^":#]+)(#[^"]*)?"/href="\1.html\2"/g; s/(\.md|\/)\.html/.html/g' | awk '
        match($0, /^<h[1-6]>/) { id = tolower($0); gsub(/<[^>]*>|&[a-z]*;|[^a-z0-9 _-]/, "", id); gsub(/ /, "-", id)
          $0 = substr($0, 1, 3) " id=\"" id "\"" substr($0, 4) } { print }' ;;
    *) printf '<h1>%s</h1>\n<pre>' "$1"
      if [ -d "$root/$1" ]; then ls "$root/$1"; else cat "$root/$1"; fi | escape
      echo '</pre>' ;;
  esac
}

failed=0
declare -A made
todo=(README.md)
for page in "$root"/tutorials/*.md "$root"/tutorials/reference/*.md; do todo+=("${page#"$root"/}"); done
template=$(<"$root/tutorials/docs.html")
while [ ${#todo[@]} -gt 0 ]; do
  path=${todo[0]} todo=("${todo[@]:1}")
  [ -z "${made[$path]:-}" ] || continue
  made[$path]=1
  folder=$(dirname "$path") file=$out/${path%.md}
  mkdir -p "$out/$folder" || die 74 "'$out' cannot be written"
  case $path in *.svg | *.png) cp "$root/$path" "$file"; continue ;; esac
  up=$(sed 's/[^/]//g; s/\//..\//g' <<<"$path")
  head=${template%@BODY@*} head=${head//@ROOT@/"$up"}
  { printf '%s' "${head//@TITLE@/"${path##*/}"}"; body "$path"; printf '%s\n' "${template#*@BODY@}"; } >"$file.html" ||
    die 74 "'$file.html' cannot be written"
  [[ $path == *.md ]] || continue
  while IFS= read -r link; do              # local links and pictures, as they are in the source
    target=$(realpath -m --relative-to="$root" -- "$root/$folder/$link")
    if [ -e "$root/$target" ] && [[ $target != ..* ]]; then todo+=("$target")
    else printf '%s links %s, which does not exist\n' "$path" "$link" >&2; failed=1
    fi
  done < <(cmark-gfm -e table "$root/$path" | grep -oP '(href|src)="\K[^":#]+(?=[#"])')
done

# A link to a heading needs the heading.
while IFS=: read -r file link; do
  target=${link%%#*} name=${link#*#}
  target=${target:+$(dirname "$file")/$target}
  grep -q "id=\"$name\"" "${target:-$file}" || { echo "${file#"$out"/} links #$name, which no heading has" >&2; failed=1; }
done < <(grep -roP --include='*.html' --exclude-dir=reports 'href="\K[^":]*#[^"]+(?=")' "$out")
cp "$out/README.html" "$out/index.html" || die 74 "'$out' cannot be written"
[ "$failed" = 0 ] || die 1 "links lead nowhere, see above"
echo "${#made[@]} pages and pictures: $out/index.html"
