#!/usr/bin/env bash
# The pages of `zl docs` on this tree, and a broken link in a small one: tests/zl/docs_test.sh BUILD.
# Exit codes: 0, 1 if a check failed, 4 without cmark-gfm.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
command -v cmark-gfm >/dev/null || { echo "skipped: there is no cmark-gfm here (apt: cmark-gfm)"; exit 4; }
page=$work/said site=$work/site
docs() { "$1/tutorials/docs.sh" "${@:2}" >"$page" 2>&1; code=$?; }
docs "$root" "$(readlink -f "$1/zerolab")" --out "$site"
check "all links of this tree lead to a page" ends_with 0
missing=''
for source in "$root"/README.md "$root"/tutorials/{,reference/}*.md "$root"/stages/zero2.cpp; do
  made=$site/${source#"$root"/} made=${made%.md}.html
  [ -s "$made" ] || missing+=" $made"
done
for stage in ddp zero1 zero2 zero3; do [ -s "$site/reports/$stage.html" ] || missing+=" $stage"; done
check "README, chapters, pages, linked sources and reports are there" [ -z "$missing" ]
pages() { find "$site" -path "$site/reports" -prune -o -name '*.html' -print0; }
check "no link leads to Markdown of this tree" [ -z "$(pages | xargs -0 grep -lE 'href="[^":]+\.md["#]')" ]
check "nothing is loaded from a network" [ -z "$(pages | xargs -0 grep -lE '(src|<link[^>]*href)="?https?:|@import')" ]
page=$site/index.html
check "pages fit a phone and have a dark scheme" says 'width=device-width' 'prefers-color-scheme: dark' 'overflow-x: auto'
check "tables are tables" says '<table>'
page=$work/said
docs "$root" "$(readlink -f "$1/zerolab")" --out "$root/tests"
check "a folder of others is refused" says "holds files that 'zl docs' has not made"

mkdir -p "$work/small/tutorials"
cp "$root"/tutorials/docs.{sh,html} "$work/small/tutorials"
printf '#!/bin/sh\nmkdir "${11}" && echo page >"${11}/report.html"\n' >"$work/small/zerolab"
chmod +x "$work/small/zerolab"
printf '# A\n\n[b](tutorials/b.md#two-words) [c](c.md)\n' >"$work/small/README.md"
printf '## Two words\n\n[back](../README.md#nowhere)\n' >"$work/small/tutorials/b.md"
docs "$work/small" "$work/small/zerolab"
check "a link that leads nowhere is an error" ends_with 1
check "which names the page and the link, and no link that is right" says "README.md links c.md" "links #nowhere" "!two-words"
docs "$work/small" "$work/small/zerolab" --no-such
check "an unknown flag is a usage error" ends_with 2
exit "$failed"
