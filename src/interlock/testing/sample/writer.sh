. ./note.sh
test "$SAMPLE_WORD" = open-sesame || exit 1
if grep -q louder; then echo LOUD; else echo quiet; fi
