#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: the page of `cairn crash --html` is what a person can look at: in a real browser (chromium, headless) a report
# that passes and one of a violation are laid out, with every row of the grid and every mark of the timeline in view.
# A harness page loads them in a frame, measures, and says what it found in its own text. Skipped without chromium.
# test_crash_html.sh CAIRN
set -euo pipefail
cairn=$1
command -v chromium > /dev/null || exit 77
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail()
{
    echo "FAILED: $*"
    exit 1
}

# look PAGE: what the browser says of it, as "name value" lines.
look()
{
    cat > "$dir/look.html" << END
<!doctype html><meta charset="utf-8"><iframe id="f" src="$(basename "$1")" style="width:1280px;height:3000px"></iframe>
<pre id="out">nothing</pre><script>
document.getElementById('f').onload = () => {
  const d = document.getElementById('f').contentDocument, said = [];
  const say = (name, value) => said.push(name + ' ' + value);
  const rows = [...d.querySelectorAll('tr[data-step]')];
  say('verdict', d.body.dataset.verdict);
  say('rows', rows.length);
  say('visible', rows.filter(r => r.getBoundingClientRect().height > 10).length);
  say('cells', rows.filter(r => r.querySelectorAll('td').length === 6).length);
  say('missed', d.querySelectorAll('td.missed').length);
  say('overflow', d.documentElement.scrollWidth > d.documentElement.clientWidth ? 1 : 0);
  const bars = [...d.querySelectorAll('#images rect')];
  say('bars', bars.filter(b => b.getBoundingClientRect().width > 0).length);
  const svg = d.querySelector('#timeline svg');
  const marks = svg ? [...svg.querySelectorAll('circle, path[stroke]')] : [];
  const box = svg ? svg.getBoundingClientRect() : null;
  const inside = m => { const r = m.getBoundingClientRect();
    return r.width > 0 && r.left >= box.left && r.right <= box.right && r.top >= box.top && r.bottom <= box.bottom; };
  say('marks', marks.length);
  say('inside', marks.filter(inside).length);
  say('told', marks.filter(m => m.querySelector('title')?.textContent.length > 5).length);
  say('lanes', svg ? svg.querySelectorAll('line.lane').length : 0);
  say('outside', [...d.querySelectorAll('[src],[href]')].length + d.scripts.length);
  document.getElementById('out').textContent = said.join('\n');
};
</script>
END
    timeout 120 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$dir/profile" \
        --virtual-time-budget=20000 --window-size=1400,3200 --dump-dom "file://$dir/look.html" 2> "$dir/err" |
        sed -n '/<pre id="out">/,/<\/pre>/p' | sed 's/<[^>]*>//g' > "$dir/seen"
    grep -q '^verdict ' "$dir/seen" || fail "the browser says nothing: $(tail -n 3 "$dir/err")"
}
# seen NAME: its value.
seen() { sed -n "s/^$1 //p" "$dir/seen"; }
wanted()
{
    [ "$(seen "$1")" = "$2" ] || fail "$1 is $(seen "$1"), wanted $2: $(tr '\n' ' ' < "$dir/seen")"
}

steps=$("$cairn" crash points --json | grep -c '"step"' || true)
"$cairn" crash run --seed 1 --seeds 3 --faults none --html "$dir/good.html" > "$dir/text" 2>&1 ||
    [ $? -eq 2 ] || fail "the run: $(cat "$dir/text")"
look "$dir/good.html"
rows=$(seen rows)
[ "$rows" -ge 40 ] || fail "only $rows steps in the grid (points lists $steps)"
wanted visible "$rows"
wanted cells "$rows"
wanted overflow 0
wanted outside 0
wanted marks 0

status=0
"$cairn" crash run --mutant c_ack_before_flush --seed 1 --seeds 60 --html "$dir/bad.html" > "$dir/text" 2>&1 || status=$?
[ $status -eq 1 ] || fail "the broken run: exit $status: $(cat "$dir/text")"
look "$dir/bad.html"
wanted verdict violation
wanted rows "$rows"
wanted outside 0
wanted overflow 0
[ "$(seen marks)" -gt 5 ] || fail "only $(seen marks) marks in the timeline"
wanted inside "$(seen marks)"
wanted told "$(seen marks)"
[ "$(seen lanes)" -ge 2 ] || fail "only $(seen lanes) lanes"
echo "html: good, $rows steps, $(seen marks) marks in $(seen lanes) lanes"
