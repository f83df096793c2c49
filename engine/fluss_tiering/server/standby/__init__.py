"""What a server answers while another one is the active one."""
