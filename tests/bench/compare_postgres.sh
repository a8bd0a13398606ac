#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# compare_postgres.sh: Cairn's transfer between two nodes beside that between two PostgreSQL instances with two-phase
# commit (pg_transfer.c), alternating, in one run. Both keep everything in memory (/dev/shm), one client each. The
# instances listen at Unix sockets alone and are removed at the end, whatever happens.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

NAMES=(cairn cairn16 statements pipelined one-shot)
TARGET=200 INSTALL='' SERVER=() AS_SERVER=() PG=''

usage()
{
    cat << END
Usage: tests/bench/compare_postgres.sh [OPTION...]

Two PostgreSQL instances on tmpfs and a client in C (libpq), against \`cairn bench micro\`. Needs postgresql-15,
libpq-dev, pkg-config and a C compiler. Runs as any user; as root the instances run as user "postgres".

  --install         install what is missing (apt-get; Debian then also makes a cluster "main", which is left alone)
$(common_usage)

Instances: fsync and synchronous_commit on, full_page_writes on, max_prepared_transactions 16, no checkpoint while
measuring. On tmpfs an fsync costs a system call and nothing more, which is in favour of PostgreSQL.
PostgreSQL's client works in three styles: "statements", one at a time, as drivers and transaction managers do;
"pipelined", few and long messages, to both instances at once; "one-shot", the same without reading before writing.
Prints throughputs, their ratio in each round, and the ratio of the medians; the aim is $TARGET times "statements".

Example: tests/bench/compare_postgres.sh --rounds 3 --cpus 0,1
Exit: 0 good, 1 below the aim, 2 wrong usage or environment. A wrong total at the end of a run is 2, without figures.
END
}

parse()
{
    while [ $# -gt 0 ]; do
        case $1 in
        --install) INSTALL=1 && shift && continue ;;
        --help | -h) usage && exit 0 ;;
        esac
        common_option "$@"
        [ $SHIFT -gt 0 ] || { usage >&2 && die "no option $1"; }
        shift $SHIFT
    done
}

have_postgres()
{
    PG=$(find /usr/lib/postgresql -path '*/bin/initdb' 2> /dev/null | sort -V | tail -n 1)
    PG=${PG%/initdb}
    [ -n "$PG" ] && pkg-config --exists libpq 2> /dev/null
}

need_postgres()
{
    have_postgres && return
    [ -n "$INSTALL" ] ||
        die 'needs PostgreSQL and libpq: --install, or as root: apt-get install postgresql-15 libpq-dev pkg-config'
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    say 'installing postgresql-15 and libpq-dev'
    {
        "${as_root[@]}" apt-get update -q &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
                postgresql-15 libpq-dev pkg-config gcc libc6-dev
    } > "$TEMP/apt.log" 2>&1 < /dev/null || { tail -n 20 "$TEMP/apt.log" >&2 && die 'apt-get failed'; }
    have_postgres || die 'PostgreSQL is installed, and there is no initdb in /usr/lib/postgresql'
}

# Called by the traps. SIGQUIT: the instances end at once, what they hold is thrown away.
# shellcheck disable=SC2317
clean_up()
{
    local pid
    for pid in "${SERVER[@]}"; do kill -QUIT "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    [ -z "$TEMP" ] || rm -rf "$TEMP"
}

# start_instance NAME: data in $TEMP/NAME/data, socket in $TEMP/NAME.
start_instance()
{
    local dir=$TEMP/$1 try
    mkdir -m 700 "$dir"
    [ ${#AS_SERVER[@]} -eq 0 ] || chown postgres: "$dir"
    "${AS_SERVER[@]}" "$PG/initdb" -D "$dir/data" -U postgres -A trust --no-sync > "$dir.log" 2>&1 ||
        { tail -n 20 "$dir.log" >&2 && die 'initdb failed'; }
    (cd / && exec setpriv --pdeathsig QUIT "${AS_SERVER[@]}" taskset -c "$CPUS" "$PG/postgres" -D "$dir/data" -k "$dir" \
        -c listen_addresses= -c max_prepared_transactions=16 -c fsync=on -c synchronous_commit=on \
        -c full_page_writes=on -c wal_level=minimal -c max_wal_senders=0 -c shared_buffers=128MB -c max_wal_size=8GB \
        -c checkpoint_timeout=1h -c unix_socket_permissions=0700 -c log_min_messages=warning) >> "$dir.log" 2>&1 &
    SERVER+=($!)
    for ((try = 0; try < 200; try++)); do
        "${AS_SERVER[@]}" "$PG/pg_isready" -q -h "$dir" -U postgres 2> /dev/null && return
        sleep 0.1
    done
    tail -n 20 "$dir.log" >&2
    die 'an instance does not start'
}

# pg_transfer STYLE ROUND
pg_transfer()
{
    local name=$1 round=$2
    run "$name" "${AS_SERVER[@]}" "$TEMP/pg_transfer" --style "$name" --accounts $((KEYS / 2)) \
        --seconds "$SECONDS_EACH" --seed "$round" \
        "host=$TEMP/left user=postgres dbname=postgres" "host=$TEMP/right user=postgres dbname=postgres"
    note "$name" "$round" "$(field throughput < "$TEMP/$name.json")"
    note "$name.median_ns" "$round" "$(field median_ns < "$TEMP/$name.json")"
    note "$name.server_cpu_us" "$round" "$(field server_cpu_us_per_transfer < "$TEMP/$name.json")"
    note "$name.client_cpu_us" "$round" "$(field client_cpu_us_per_transfer < "$TEMP/$name.json")"
}

report_json()
{
    local name
    printf '{"comparison": "postgres", "cpu": "%s", "cpus": "%s", "rounds": %d, "postgres": "%s", "keys": %d' \
        "$(cpu_model)" "$CPUS" "$ROUNDS" "$("$PG/postgres" -V)" "$KEYS"
    for name in "${NAMES[@]}"; do printf ', "%s": %s' "$name" "$(values "$name" | array)"; done
    printf ', "ratio": %s, "ratio_of_rounds": %s, "target": %d' "$(ratio cairn statements)" \
        "$(ratios cairn statements | array)" $TARGET
    awk '$1 ~ /cpu_us$/ && !seen[$1]++ { print $1 }' "$TEMP/figures" |
        while read -r name; do printf ', "%s": %s' "${name/./_}" "$(median "$name")"; done
    for name in pipelined one-shot; do
        printf ', "ratio_%s": %s, "ratio_%s_of_rounds": %s' "$name" "$(ratio cairn $name)" "$name" \
            "$(ratios cairn $name | array)"
    done
    printf ', "ratio_of_median_times": %s}\n' "$(ratio statements.median_ns cairn.median_ns)"
}

report()
{
    local name
    echo
    echo "transfers per second, verified, medians of $ROUNDS rounds, on CPUs $CPUS for each with its nodes or servers"
    for name in cairn cairn16; do
        printf '  %-52s %12s  %s us of CPU each, nodes %s us\n' $name "$(median $name)" \
            "$(median $name.coordinator_cpu_us)" "$(median $name.nodes_cpu_us)"
    done
    for name in statements pipelined one-shot; do
        printf '  %-52s %12s  %s us of CPU each, servers %s us\n' "postgres, $name" "$(median $name)" \
            "$(median $name.client_cpu_us)" "$(median $name.server_cpu_us)"
    done
    echo "ratio $(ratio cairn statements) of medians (cairn, one at a time / postgres, statements); rounds:" \
        "$(ratios cairn statements | paste -sd ' '); aim $TARGET"
    for name in pipelined one-shot; do
        echo "ratio $(ratio cairn $name) to $name; rounds: $(ratios cairn $name | paste -sd ' ')"
    done
    echo "by the median time of a transfer, which others on the machine disturb less: cairn $(median cairn.median_ns) ns," \
        "statements $(median statements.median_ns) ns, ratio $(ratio statements.median_ns cairn.median_ns);" \
        "pipelined $(ratio pipelined.median_ns cairn.median_ns), one-shot $(ratio one-shot.median_ns cairn.median_ns)"
}

main()
{
    local round
    parse "$@"
    prepare
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    need_postgres
    if [ "$(id -u)" -eq 0 ]; then
        id postgres > /dev/null 2>&1 || die 'as root it needs a user "postgres", which the package makes'
        AS_SERVER=(setpriv --reuid postgres --regid postgres --init-groups)
    fi
    chmod 711 "$TEMP"
    # shellcheck disable=SC2046 # several options
    "${CC:-cc}" -std=gnu11 -O2 -iquote "$ROOT" $(pkg-config --cflags libpq) "$BENCH_DIR/pg_transfer.c" -o "$TEMP/pg_transfer" \
        $(pkg-config --libs libpq) || die 'pg_transfer.c does not build'
    start_instance left
    start_instance right
    for ((round = 1; round <= ROUNDS; round++)); do
        cairn_transfer cairn 1 "$round"
        pg_transfer statements "$round"
        cairn_transfer cairn16 16 "$round"
        pg_transfer pipelined "$round"
        pg_transfer one-shot "$round"
        say "round $round: $(for name in "${NAMES[@]}"; do echo -n "$name $(values "$name" | tail -n 1)  "; done)"
    done
    if [ -n "$JSON" ]; then report_json; else report; fi
    awk -v r="$(ratio cairn statements)" -v t=$TARGET 'BEGIN { exit !(r >= t) }' || exit 1
}

main "$@"
