#!/bin/sh
echo "$INTERLOCK_UNIT_ID" >> ran
echo "script of $INTERLOCK_STEP_ID"
