"""streamad: monitors whole sensor sequences; calibrated alerts that say why, from recordings or live streams."""
