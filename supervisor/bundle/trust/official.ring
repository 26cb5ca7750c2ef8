jail key ring
publisher jail
version 0
