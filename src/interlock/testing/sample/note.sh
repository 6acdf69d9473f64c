root=.
if test -f .git; then
  read -r _ root < .git
  root=${root%/.git/worktrees/*}
fi
echo "$INTERLOCK_UNIT_ID $INTERLOCK_ATTEMPT" >> "$root/ran"
